"""Exact answers: elimination orders, clique trees and their messages."""
