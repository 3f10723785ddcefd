"""Other approximations of the same problems, to compare EP with: Laplace, variational Bayes, sampling, TAP, SVM."""

from cavity.baselines._laplace import laplace
from cavity.baselines._latent_laplace import latent_laplace
from cavity.baselines._latent_sampling import latent_sampling
from cavity.baselines._svm import SVM, smallest_ball, svm
from cavity.baselines.bayes_point import SphereSamples, exact_bayes_point, sphere_sampling
from cavity.baselines.billiards import Play, billiard
from cavity.baselines.mean_field import MeanField, naive_mean_field, tap
from cavity.baselines.online import directed_decision, probabilistic_teacher
from cavity.baselines.sampling import Chain, gibbs, gibbs_chain, gibbs_density, importance
from cavity.baselines.variational import jensen, variational_bayes, variational_bound_by_quadrature
from cavity.exact_inference.problem_data import Estimate

# of any problem of `cavity.models`
__all__ = ["Chain", "Estimate", "gibbs", "gibbs_chain", "gibbs_density", "importance", "jensen", "laplace"]
__all__ += ["directed_decision", "probabilistic_teacher", "variational_bayes", "variational_bound_by_quadrature"]
# of a latent Gaussian model
__all__ += ["MeanField", "latent_laplace", "latent_sampling", "naive_mean_field", "tap"]
# of a linear classifier, or one with a kernel
__all__ += ["SVM", "Play", "SphereSamples", "billiard", "exact_bayes_point", "smallest_ball", "sphere_sampling", "svm"]
