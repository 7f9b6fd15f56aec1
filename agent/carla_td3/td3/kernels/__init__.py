"""What the networks compute with on this processor: the fast forms of their layers. Knows no update and no loss."""
