"""What people read: a plan, told in tables and as one object."""
