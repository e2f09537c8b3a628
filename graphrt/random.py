"""tf.random: random values, by the names that TF1 has for them there."""

from graphrt.api import nn_sampling as _sampling
from graphrt.api import random_api as _api

Algorithm = _api.Algorithm
get_seed, set_random_seed = _api.get_seed, _api.set_random_seed

uniform, normal, truncated_normal = _api.random_uniform, _api.random_normal, _api.truncated_normal
gamma, poisson, shuffle = _api.random_gamma, _api.random_poisson, _api.random_shuffle
multinomial, categorical = _api.multinomial, _api.categorical

stateless_uniform, stateless_normal = _api.stateless_uniform, _api.stateless_normal
stateless_truncated_normal = _api.stateless_truncated_normal
stateless_gamma, stateless_poisson = _api.stateless_gamma, _api.stateless_poisson
stateless_multinomial, stateless_categorical = _api.stateless_multinomial, _api.stateless_categorical
split, fold_in = _api.split, _api.fold_in

all_candidate_sampler = _sampling.all_candidate_sampler
uniform_candidate_sampler = _sampling.uniform_candidate_sampler
log_uniform_candidate_sampler = _sampling.log_uniform_candidate_sampler
learned_unigram_candidate_sampler = _sampling.learned_unigram_candidate_sampler
fixed_unigram_candidate_sampler = _sampling.fixed_unigram_candidate_sampler
