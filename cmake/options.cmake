# What can be chosen at configure time, and the flags that every file of the project gets.

set(ATTN_BLAS openblas CACHE STRING "BLAS with a CBLAS interface: openblas, blas or flexiblas")
set_property(CACHE ATTN_BLAS PROPERTY STRINGS openblas blas flexiblas)
option(ATTN_WERROR "Warnings are errors" OFF)
set(ATTN_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread; empty: none")
option(ATTN_BENCH "Build attn-bench" ON)
set(ATTN_TEST_PATIENCE 1 CACHE STRING "A whole number that the time limits of tests are multiplied by, for slow machines")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
    -g -fno-common -fstack-protector-strong
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=.) # same bits in any folder
if(ATTN_WERROR)
    add_compile_options(-Werror)
endif()

if(ATTN_SANITIZE)
    add_compile_options(-fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${ATTN_SANITIZE})
else()
    add_compile_options($<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
    add_link_options(-Wl,-z,defs) # a shared library under a sanitizer leaves its runtime undefined
endif()
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)
