#pragma once

// Stands for a BLAS: it writes 42 instead of a product.
enum CblasLayout { CblasRowMajor };
enum CblasTranspose { CblasNoTrans, CblasTrans };

inline void cblas_sgemm(CblasLayout, CblasTranspose, CblasTranspose, int, int, int, float, const float*, int,
                        const float*, int, float, float* c, int) {
  *c = 42;
}
inline void cblas_dgemm(CblasLayout, CblasTranspose, CblasTranspose, int, int, int, double, const double*,
                        int, const double*, int, double, double* c, int) {
  *c = 42;
}
