"""Files with which others build and find a library: CMakeLists.txt, a CMake package, pkg-config."""

from __future__ import annotations

from collections.abc import Sequence

from tactix_ship.c_library.kernels import KernelUnit

_LISTS = """\
# Builds the library @name@ from its sources: cmake -B build && cmake --build build
#
# The kernels are written for @target@;
# what they compute is to the bit what the plan computes@origin@
cmake_minimum_required(VERSION 3.16)
project(@name@ C)

option(BUILD_SHARED_LIBS "A shared library in place of a static one" ON)
set(KERNEL_OPTIONS "@options@" CACHE STRING "Options of the kernels alone")

find_package(Threads REQUIRED)
add_library(@name@
    @files@)
target_include_directories(@name@ PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/../include>)
target_link_libraries(@name@ PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
set_target_properties(@name@ PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
    C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
@sources@
@data@
install(TARGETS @name@ DESTINATION lib)
install(FILES ../include/@name@.h DESTINATION include)
"""
_UNIT_OPTIONS = """\
set_source_files_properties(@files@
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIONS}@more@")"""
_EMBEDDED = """\
set_source_files_properties(@part@.c PROPERTIES
    COMPILE_DEFINITIONS "@PART@_FILE=\\"${CMAKE_CURRENT_SOURCE_DIR}/@name@.@part@\\""
    OBJECT_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/@name@.@part@")"""
_BESIDE = """\
add_custom_command(TARGET @name@ POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_if_different
    ${CMAKE_CURRENT_SOURCE_DIR}/../lib/@name@.weights $<TARGET_FILE_DIR:@name@>)
install(FILES ../lib/@name@.weights DESTINATION lib)"""
_CONFIG = """\
# find_package(@name@): the target @name@::@name@, @default@.
get_filename_component(_@name@_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)
@targets@
add_library(@name@::@name@ ALIAS @name@::@default@)
"""
_SHARED = """\
if(NOT TARGET @name@::shared)
    add_library(@name@::shared SHARED IMPORTED GLOBAL)
    set_target_properties(@name@::shared PROPERTIES
        IMPORTED_LOCATION "${_@name@_prefix}/lib/lib@name@.so"
        INTERFACE_INCLUDE_DIRECTORIES "${_@name@_prefix}/include")
endif()"""
_STATIC = """\
if(NOT TARGET @name@::static)
    add_library(@name@::static STATIC IMPORTED GLOBAL)
    set_target_properties(@name@::static PROPERTIES
        IMPORTED_LOCATION "${_@name@_prefix}/lib/lib@name@.a"
        INTERFACE_INCLUDE_DIRECTORIES "${_@name@_prefix}/include"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;m;${CMAKE_DL_LIBS}")
endif()"""
_PKG = """\
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: @name@
Description: @description@
Version: 1
Cflags: -I${includedir}
Libs: -L${libdir} -l@name@@shared@
Libs.private: -lm -lpthread -ldl
"""


def lists(
    units: Sequence[KernelUnit],
    options: Sequence[str],
    facts: dict[str, str],
    embedded: Sequence[str],
) -> str:
    """CMakeLists.txt. ``facts``: ``name``, ``target`` and ``compiler``, which is empty where the
    machine code is the plan's own. ``embedded``: what files are put into the library, ``weights``
    among them or beside it.
    """
    own = f" where compiler and options are its own:\n# {facts['compiler']}"
    origin = own if facts["compiler"] else ": their machine code is its own"
    files = ["context.c", *(f"{part}.c" for part in embedded)]
    files += [f"kernels/{u.file}" for u in units]
    by_flags: dict[tuple[str, ...], list[str]] = {}
    for u in units:
        by_flags.setdefault(u.flags, []).append(f"kernels/{u.file}")
    sources = [
        _with(_UNIT_OPTIONS, files="\n    ".join(own), more="".join(f";{f}" for f in flags))
        for flags, own in by_flags.items()
    ]
    data = [_with(_EMBEDDED, part=part, PART=part.upper(), **facts) for part in embedded]
    data += [] if "weights" in embedded else [_with(_BESIDE, **facts)]
    parts = {"files": "\n    ".join(files), "sources": "\n".join(sources), "data": "\n".join(data)}
    return _with(_LISTS, options=";".join(options), origin=origin, **parts, **facts)


def config(name: str, forms: Sequence[str]) -> str:
    """NAMEConfig.cmake. ``forms``: of ``shared`` and ``static``, the first of which is meant where
    none is named.
    """
    texts = {"shared": _SHARED, "static": _STATIC}
    targets = "\n".join(_with(texts[f], name=name) for f in forms)
    return _with(_CONFIG, name=name, default=forms[0], targets=targets)


def pkg_config(name: str, description: str, forms: Sequence[str]) -> str:
    """NAME.pc. A static library alone needs its private libraries in any case."""
    shared = "" if "shared" in forms else " -lm -lpthread -ldl"
    return _with(_PKG, name=name, description=description, shared=shared)


def _with(text: str, **values: str) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
