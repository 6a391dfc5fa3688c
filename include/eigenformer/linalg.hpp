#pragma once

/// \file
/// Linear algebra by Eigen's decompositions, with gradients: solve, lstsq, inverse, det, cholesky, qr, svd,
/// eigh. Apart from eigenformer.hpp because Eigen's decompositions take long to compile.

#include "eigenformer/autograd/linalg/linalg.hpp"
