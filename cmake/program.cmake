# The program attn: the public headers and the shared library, nothing from inside.

file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
if(cli_sources)
    add_executable(attn_program ${cli_sources})
    set_target_properties(attn_program PROPERTIES OUTPUT_NAME attn RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_compile_options(attn_program PRIVATE -fno-math-errno)
    target_link_libraries(attn_program PRIVATE attn PkgConfig::JANSSON Threads::Threads m)
endif()
