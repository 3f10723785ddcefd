"""Figures of Y. Qi and Y. Guo, "Message passing with relaxed moment matching": relaxed EP (REP)."""

DOCUMENT = "Qi & Guo (relaxed EP)"
