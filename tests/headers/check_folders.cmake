# cmake -DROOT=<the source folder> -P check_folders.cmake: a folder has 3 to 12 files. Files in its folders do not count as its own, but a
# folder may have fewer if it has 3 files and folders; in the folders of include/eigenformer these together are at most 12.
cmake_minimum_required(VERSION 3.22)
set(least 3)
set(most 12)

# Folders that may have fewer, each with the reason. None may have more.
set(reason_of_few
    "^\\.(ci|github/.*)$=the host of the repository sets their names"
    "^packaging/=Conan and vcpkg set their names"
    "^include$=it holds the folder whose name begins every #include"
    "^examples/[a-z_]+$=one example each"
    "^bench/corpora$=a measurement: a script and its generator"
    "^tests/(allocations|bench|students)$=one test program each, for what has no folder in include/"
    "^tests/consumer/=one client project each"
    "^tests/fixtures/(model_0_1_0|tokenizers)/=as the program that wrote them lays them out")

# What git tracks; where that is not known, all files but those that .gitignore names.
execute_process(COMMAND git -c safe.directory=* -c core.quotePath=off ls-files WORKING_DIRECTORY "${ROOT}"
                OUTPUT_VARIABLE files RESULT_VARIABLE unknown ERROR_QUIET)
string(REGEX REPLACE "\n" ";" files "${files}")
list(FILTER files EXCLUDE REGEX "^$")
if(unknown OR NOT files)
  file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/*")
  list(FILTER files EXCLUDE REGEX "^(build|cmake-build-[^/]*|\\.git|\\.cache|packaging/conan/test_package/build)/|(^|/)CMakeUserPresets\\.json$|^compile_commands\\.json$|/__pycache__/|\\.swp$")
endif()

# Counts `entry` in its folder, and a folder that is new in the one above it.
set(folders "")
macro(count_in folder kind)
  if(NOT DEFINED "files_of_${folder}")
    list(APPEND folders "${folder}")
    set("files_of_${folder}" 0)
    set("folders_of_${folder}" 0)
  endif()
  math(EXPR "${kind}_of_${folder}" "${${kind}_of_${folder}} + 1")
endmacro()
foreach(entry IN LISTS files)
  if(NOT EXISTS "${ROOT}/${entry}")
    continue()  # removed, but not yet from git's index
  endif()
  set(kind files)
  while(NOT entry STREQUAL "")
    get_filename_component(folder "${entry}" DIRECTORY)
    set(known FALSE)
    if(DEFINED "files_of_${folder}")
      set(known TRUE)
    endif()
    count_in("${folder}" ${kind})
    if(known)
      break()
    endif()
    set(entry "${folder}")
    set(kind folders)
  endwhile()
endforeach()

set(failures "")
set(used "")
foreach(folder IN LISTS folders)
  set(own "${files_of_${folder}}")
  math(EXPR all "${own} + ${folders_of_${folder}}")
  set(name "${folder}")
  if(folder STREQUAL "")
    set(name "the source folder")
  endif()
  if(own GREATER most)
    list(APPEND failures "${name} has ${own} files, expected ${least} to ${most}")
  elseif(folder MATCHES "^include/eigenformer/" AND all GREATER most)
    list(APPEND failures "${name} has ${all} files and folders, expected ${least} to ${most}")
  elseif(all LESS least)
    set(excused FALSE)
    foreach(reason IN LISTS reason_of_few)
      string(REGEX REPLACE "=.*" "" pattern "${reason}")
      if(folder MATCHES "${pattern}")
        set(excused TRUE)
        list(APPEND used "${reason}")
      endif()
    endforeach()
    # A folder of tests may have few because it mirrors one of include/.
    string(REGEX REPLACE "^tests/" "include/eigenformer/" mirrored "${folder}")
    if(folder MATCHES "^tests/" AND IS_DIRECTORY "${ROOT}/${mirrored}")
      set(excused TRUE)
    endif()
    if(NOT excused)
      list(APPEND failures "${name} has ${all} files and folders, expected ${least} to ${most}")
    endif()
  endif()
endforeach()
foreach(reason IN LISTS reason_of_few)
  if(NOT reason IN_LIST used)
    list(APPEND failures "no folder with fewer than ${least} files needs the exception ${reason}")
  endif()
endforeach()
if(failures)
  list(JOIN failures "\n  " failures)
  message(FATAL_ERROR "  ${failures}")
endif()
list(LENGTH folders count)
message(STATUS "${count} folders: each has ${least} to ${most} files, or a reason")
