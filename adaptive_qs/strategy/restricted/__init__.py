"""The best strategies of fixed families: residual bases, Fourier, eigenvectors."""
