"""The channel between learner and collector: orders and reports, the status block, the weights."""
