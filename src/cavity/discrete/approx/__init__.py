"""Approximate answers: loopy belief propagation, trees, clusters, max-product, filtering."""
