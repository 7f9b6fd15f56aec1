"""Fast versions of the networks' layers for this processor. Knows no update and no loss."""
