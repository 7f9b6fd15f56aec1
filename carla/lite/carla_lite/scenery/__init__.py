"""The pictures of cameras: ground, buildings, trees, cars and sky, projected and painted with OpenCV."""
