"""What a camera sees: ground, buildings, trees, cars and sky, projected and painted with OpenCV."""
