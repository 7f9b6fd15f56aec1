"""What learner and collector exchange: orders and reports, the status block, the weights."""
