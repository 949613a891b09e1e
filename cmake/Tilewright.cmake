# How every folder of src/ becomes a library and a test.

add_library(tw_options INTERFACE)
target_compile_options(tw_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror)
# GCC 12 reports both where nothing is wrong once it inlines std::string and std::variant at -O2 (its bugs 105651, 105562).
target_compile_options(tw_options INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict;-Wno-maybe-uninitialized>)
# GCC 12's <algorithm>, which clang uses here, calls the deprecated get_temporary_buffer in stable_sort.
target_compile_options(tw_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
# Sources compiled several at a time (half the time of a full build): in such a file g++ takes what a source keeps in its
# unnamed namespace for a header's. A heap of 512 MB before it first collects garbage (128 MB) takes 6 % less time.
if(TILEWRIGHT_BATCHES)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  target_compile_options(tw_options INTERFACE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=512000>)
endif()
target_include_directories(tw_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
if(TILEWRIGHT_SANITIZE)
  target_compile_options(tw_options INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tw_options INTERFACE -fsanitize=${TILEWRIGHT_SANITIZE})
  # clang reads 8 bytes before a function that is called by a pointer, where generated code has none.
  target_compile_options(tw_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  # GCC 12 reports it inside std::regex as well, once AddressSanitizer instruments that.
  target_compile_options(tw_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

if(TILEWRIGHT_FUZZ)
  target_compile_options(tw_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# tw_onnx: the ONNX format's own protobuf classes (libonnx-dev), for `#include "onnx/onnx_pb.h"`. The definitions are the
# ones the distribution's library was built with; without them the header declares other classes than the library holds.
find_path(TILEWRIGHT_ONNX_INCLUDE onnx/onnx_pb.h REQUIRED)
find_library(TILEWRIGHT_ONNX_PROTO onnx_proto REQUIRED)
add_library(tw_onnx INTERFACE)
target_compile_definitions(tw_onnx INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)
target_include_directories(tw_onnx SYSTEM INTERFACE ${TILEWRIGHT_ONNX_INCLUDE})
target_link_libraries(tw_onnx INTERFACE ${TILEWRIGHT_ONNX_PROTO} protobuf::libprotobuf)

# tw_cbc: the mixed-integer solver of COIN-OR (coinor-libcbc-dev), for `#include <coin/CbcSolver.hpp>`.
find_path(TILEWRIGHT_CBC_INCLUDE coin/CbcSolver.hpp REQUIRED)
add_library(tw_cbc INTERFACE)
target_include_directories(tw_cbc SYSTEM INTERFACE ${TILEWRIGHT_CBC_INCLUDE})
foreach(library CbcSolver Cbc Cgl OsiClp Clp Osi CoinUtils)
  find_library(TILEWRIGHT_CBC_${library} ${library} REQUIRED)
  target_link_libraries(tw_cbc INTERFACE ${TILEWRIGHT_CBC_${library}})
endforeach()

# tw_sources(TARGET [MOST n] SOURCE...)
#
# Adds the sources; with TILEWRIGHT_BATCHES n (20) or fewer in one file, in the groups that scripts/batches.py finds. The
# files are written again when a source changes, and only those compiled again that differ or include it. Where a change
# needs more files than there are, the next build configures first.
set(TILEWRIGHT_BATCHES_STAMP ${CMAKE_BINARY_DIR}/batches/stamp)
function(tw_sources target)
  cmake_parse_arguments(ARG "" "MOST" "" ${ARGN})
  set(sources ${ARG_UNPARSED_ARGUMENTS})
  if(NOT TILEWRIGHT_BATCHES)
    target_sources(${target} PRIVATE ${sources})
    return()
  endif()
  if(NOT ARG_MOST)
    set(ARG_MOST 20)
  endif()
  set(script ${CMAKE_SOURCE_DIR}/scripts/batches.py)
  set(most --most ${ARG_MOST})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${script} ${most} --count ${sources} OUTPUT_VARIABLE count
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT EXISTS ${TILEWRIGHT_BATCHES_STAMP})
    file(WRITE ${TILEWRIGHT_BATCHES_STAMP} "")
  endif()
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TILEWRIGHT_BATCHES_STAMP})
  set(prefix ${CMAKE_BINARY_DIR}/batches/${target}_)
  math(EXPR last "${count} - 1")
  set(batches "")
  foreach(k RANGE ${last})
    list(APPEND batches ${prefix}${k}.cpp)
  endforeach()
  add_custom_command(OUTPUT ${batches}
    COMMAND Python3::Interpreter ${script} ${most} --into ${prefix} ${count} --stamp ${TILEWRIGHT_BATCHES_STAMP} ${sources}
    DEPENDS ${sources} ${script} COMMENT "Batches of ${target}" VERBATIM)
  target_sources(${target} PRIVATE ${batches})
endfunction()

# tw_cold_sources(TARGET SOURCE...)
#
# The same for a target that spends little time in its own code, a test program or the command line: it is compiled with
# less optimisation, which takes 40 % less time, and twice as many sources at a time, which takes a fifth less.
function(tw_cold_sources target)
  tw_sources(${target} MOST 32 ${ARGN})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# TILEWRIGHT_RUNTIME_SOURCES: what libtilewright_runtime consists of. The global property TILEWRIGHT_RUNTIME_LIBRARIES
# lists the static libraries that have these sources.
set(TILEWRIGHT_RUNTIME_SOURCES "")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/runtime_sources.txt)
file(STRINGS ${CMAKE_SOURCE_DIR}/src/runtime_sources.txt patterns REGEX "^[^#]")
foreach(pattern IN LISTS patterns)
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${pattern})
  list(APPEND TILEWRIGHT_RUNTIME_SOURCES ${found})
endforeach()

# tw_library(FOLDER [COLD] [DEPS target-or-folder...] [LINK library...] [APART sub-folder...])
#
# FOLDER is relative to src/. Every *.cpp in it that does not end in _test.cpp (sub-folders included, unless a sub-folder
# is a library itself) becomes the static library tw_FOLDER; every *_test.cpp becomes part of FOLDER's test program.
# DEPS are folders or imported targets that its headers use; LINK are used by its sources alone; sources of APART belong
# to another target. Where some sources are the runtime library's, these are tw_FOLDER_runtime, which tw_FOLDER links.
# COLD: see tw_cold_sources; the runtime library's sources are optimised all the same.
function(tw_library folder)
  cmake_parse_arguments(ARG "COLD" "" "DEPS;LINK;APART" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  foreach(apart IN LISTS ARG_APART)
    list(FILTER sources EXCLUDE REGEX "/${folder}/${apart}/")
  endforeach()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(runtime ${sources})
  foreach(source IN LISTS sources)
    if(NOT source IN_LIST TILEWRIGHT_RUNTIME_SOURCES)
      list(REMOVE_ITEM runtime ${source})
    endif()
  endforeach()
  if(runtime STREQUAL sources AND sources)
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_RUNTIME_LIBRARIES tw_${name})
  elseif(runtime)
    list(REMOVE_ITEM sources ${runtime})
    add_library(tw_${name}_runtime STATIC)
    tw_sources(tw_${name}_runtime ${runtime})
    set_property(GLOBAL APPEND PROPERTY TILEWRIGHT_RUNTIME_LIBRARIES tw_${name}_runtime)
  endif()
  set(kind STATIC)
  set(scope PUBLIC)
  if(NOT sources)
    set(kind INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tw_${name} ${kind})
  if(sources AND ARG_COLD)
    tw_cold_sources(tw_${name} ${sources})
  elseif(sources)
    tw_sources(tw_${name} ${sources})
  endif()
  target_link_libraries(tw_${name} ${scope} tw_options)
  foreach(dep IN LISTS ARG_DEPS)
    string(REPLACE "/" "_" dep_name ${dep})
    if(dep STREQUAL "LLVM")
      if(sources)
        target_include_directories(tw_${name} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
      endif()
      target_link_libraries(tw_${name} ${scope} ${TILEWRIGHT_LLVM})
    elseif(TARGET tw_${dep_name})
      target_link_libraries(tw_${name} ${scope} tw_${dep_name})
    else()
      target_link_libraries(tw_${name} ${scope} ${dep})
    endif()
  endforeach()
  if(sources)
    target_link_libraries(tw_${name} PRIVATE ${ARG_LINK})
  endif()
  if(TARGET tw_${name}_runtime)
    get_target_property(needed tw_${name} INTERFACE_LINK_LIBRARIES)
    target_link_libraries(tw_${name}_runtime PUBLIC tw_options ${needed})
    target_link_libraries(tw_${name} PUBLIC tw_${name}_runtime)
  endif()
  if(TILEWRIGHT_TESTS AND tests)
    add_executable(${name}_test)
    tw_cold_sources(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE tw_${name} ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main rapidcheck)
    target_compile_definitions(${name}_test PRIVATE TW_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    if("LLVM" IN_LIST ARG_DEPS)
      target_include_directories(${name}_test SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
    endif()
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()

# tw_embed(FOLDER TEMPLATE NAME=FILE...)
#
# Adds TEMPLATE, with @TW_TEXT_NAME@ replaced by the contents of FILE, to FOLDER's library. Paths are relative to FOLDER.
function(tw_embed folder template)
  string(REPLACE "/" "_" name ${folder})
  foreach(pair IN LISTS ARGN)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 variable)
    list(GET pair 1 file)
    set(path ${CMAKE_SOURCE_DIR}/src/${folder}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} TW_TEXT_${variable})
  endforeach()
  cmake_path(GET template STEM LAST_ONLY source)  # without ".in"
  set(generated ${CMAKE_BINARY_DIR}/generated/${name}_${source})
  configure_file(${CMAKE_SOURCE_DIR}/src/${folder}/${template} ${generated} @ONLY)
  target_sources(tw_${name} PRIVATE ${generated})
endfunction()
