#pragma once

#include <Eigen/Core>

namespace eigenformer {

/// A 16-bit storage format, IEEE 754 binary16: 5 bits of exponent, 11 bits of precision, at most 65504.
/// Conversion from float rounds to nearest, ties to even; 65520 and more give infinity, NaN stays NaN.
/// std::bit_cast gives and takes the bits.
using float16 = Eigen::half;

static_assert(sizeof(float16) == 2);

/// A 16-bit storage format: float's sign and exponent, 8 bits of precision. Conversion from float rounds to
/// nearest, ties to even; overflow gives infinity, NaN stays NaN. std::bit_cast gives and takes the bits.
using bfloat16 = Eigen::bfloat16;

static_assert(sizeof(bfloat16) == 2);

}  // namespace eigenformer
