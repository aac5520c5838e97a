# The programs of this folder see every call that can fail: the linker hands them to inject.c.
set(injected malloc calloc realloc aligned_alloc strdup posix_memalign free open close pread write fsync fstat lstat readlink fchmod
    rename unlink sched_getaffinity pthread_attr_init pthread_create pthread_join pthread_mutex_init pthread_mutex_destroy
    pthread_cond_init pthread_cond_destroy attn__arena_take attn__arena_status
    attn__arena_reserve attn__list_add attn__run attn__cancelled attn__kernels_for)
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
# the largest by a sample here, whole by run-injection.sh
foreach(stem files models training)
    if(TEST injection/${stem})
        set_tests_properties(injection/${stem} PROPERTIES ENVIRONMENT ATTN_INJECTION_STEP=5)
    endif()
endforeach()
