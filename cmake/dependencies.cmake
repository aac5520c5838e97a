# BLAS, jansson, threads and libm; all of them private to the library.

find_package(PkgConfig REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)

if(ATTN_BLAS STREQUAL "openblas")
    pkg_search_module(ATTN__BLAS REQUIRED IMPORTED_TARGET openblas)
elseif(ATTN_BLAS STREQUAL "blas")
    pkg_search_module(ATTN__BLAS REQUIRED IMPORTED_TARGET cblas blas)
elseif(ATTN_BLAS STREQUAL "flexiblas")
    pkg_search_module(ATTN__BLAS REQUIRED IMPORTED_TARGET flexiblas)
    # FlexiBLAS keeps the library behind it to itself. Where that is built with OpenMP, each thread has a number of its own, which only the same
    # OpenMP can set to one (src/core/guard.c): it is loaded with us, since nothing else would make its names known.
    find_library(ATTN__OPENMP NAMES gomp libgomp.so.1)
    mark_as_advanced(ATTN__OPENMP)
    if(ATTN__OPENMP)
        set_property(TARGET PkgConfig::ATTN__BLAS APPEND PROPERTY INTERFACE_LINK_LIBRARIES
            -Wl,--push-state,--no-as-needed ${ATTN__OPENMP} -Wl,--pop-state)
    endif()
else()
    message(FATAL_ERROR "ATTN_BLAS: got \"${ATTN_BLAS}\", expected openblas, blas or flexiblas")
endif()

# A Fortran BLAS without the C interface would only be noticed at the last link.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::ATTN__BLAS)
set(CMAKE_REQUIRED_QUIET ON)
unset(ATTN_BLAS_${ATTN_BLAS}_WORKS CACHE)
check_c_source_compiles("
#include <cblas.h>
int main(void)
{
    float a[1] = {2}, b[1] = {3}, c[1] = {0};
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, a, 1, b, 1, 0, c, 1);
    return c[0] != 6;
}" ATTN_BLAS_${ATTN_BLAS}_WORKS)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_QUIET)
if(NOT ATTN_BLAS_${ATTN_BLAS}_WORKS)
    message(FATAL_ERROR "ATTN_BLAS=${ATTN_BLAS}: pkg-config module \"${ATTN__BLAS_MODULE_NAME}\" gives no cblas_sgemm; see CMakeError.log")
endif()
message(STATUS "BLAS: ${ATTN__BLAS_MODULE_NAME} ${ATTN__BLAS_VERSION}")
