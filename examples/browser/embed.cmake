# Writes OUTPUT: PAGE with the script ENGINE in place of the comment.
cmake_minimum_required(VERSION 3.22)
file(READ "${ENGINE}" engine)
if(engine MATCHES "</script")
  message(FATAL_ERROR "the engine has an end tag of a script, and cannot stand in a page")
endif()
file(READ "${PAGE}" page)
string(REPLACE "/* the engine */" "${engine}" page "${page}")
file(WRITE "${OUTPUT}" "${page}")
