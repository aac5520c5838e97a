# Targets for people who change the code: format, format-check, tidy.
file(GLOB_RECURSE style_files CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/src/*.[ch] ${PROJECT_SOURCE_DIR}/tests/*.[ch] ${PROJECT_SOURCE_DIR}/bench/*.[ch]
    ${PROJECT_SOURCE_DIR}/docs/*.[ch])
file(GLOB_RECURSE tidy_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
find_program(ATTN_CLANG_FORMAT NAMES clang-format clang-format-14)
find_program(ATTN_CLANG_TIDY NAMES clang-tidy clang-tidy-14)
if(ATTN_CLANG_FORMAT)
    add_custom_target(format COMMAND ${ATTN_CLANG_FORMAT} -i ${style_files} VERBATIM)
    add_custom_target(format-check COMMAND ${ATTN_CLANG_FORMAT} --dry-run --Werror ${style_files} VERBATIM)
endif()
if(ATTN_CLANG_TIDY)
    add_custom_target(tidy COMMAND ${ATTN_CLANG_TIDY} --quiet -p ${PROJECT_BINARY_DIR} ${tidy_files} VERBATIM)
endif()
