"""What the user touches: magics, and every result as text and as HTML."""
