#ifndef ATTN_KERNELS_BLAS_ISA_H
#define ATTN_KERNELS_BLAS_ISA_H
/* Every file of this folder but gemm.c is compiled once per instruction set (baseline, and on x86-64 avx2 and avx512) with ATTN__ISA
   set to its name. BLAS(linear) is then attn__blas_avx512_linear: names shared between files of the folder go through it, everything
   else is static. Nothing here may run before src/kernels/select.c has chosen the set. */
#ifndef ATTN__ISA
#define ATTN__ISA baseline
#endif
#define ATTN__BLAS_JOIN(isa, name) attn__blas_##isa##_##name
#define ATTN__BLAS_EXPAND(isa, name) ATTN__BLAS_JOIN(isa, name)
#define BLAS(name) ATTN__BLAS_EXPAND(ATTN__ISA, name)
#endif
