# The programs of this folder see every call that can fail: the linker hands them to inject.c.
set(injected malloc calloc realloc aligned_alloc strdup posix_memalign free open close pread write fsync fstat lstat readlink fchmod
    rename unlink sched_getaffinity pthread_attr_init pthread_create pthread_join pthread_mutex_init pthread_mutex_destroy
    pthread_cond_init pthread_cond_destroy attn__arena_take attn__arena_status)
list(TRANSFORM injected PREPEND -Wl,--wrap=)
file(GLOB injection_programs CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.c)
foreach(source ${injection_programs})
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "test_injection_" target ${stem})
    if(TARGET ${target})
        target_sources(${target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/inject.c ${CMAKE_CURRENT_LIST_DIR}/scenario.c)
        target_link_options(${target} PRIVATE ${injected})
    endif()
endforeach()
