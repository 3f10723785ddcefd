"""Figures of W. Jitkrittum et al., "Kernel-based just-in-time learning for passing EP messages" (UAI 2015)."""

DOCUMENT = "Jitkrittum et al. (learned messages)"
