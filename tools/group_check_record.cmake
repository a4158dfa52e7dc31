# SPDX-License-Identifier: Apache-2.0
# `hekla group-check --record` goes on where an earlier run has ended: after one that has done some
# parts and was cut off in the midst of a line, all parts are there and those alone are run anew.
set(record ${FOLDER}/group_check_record.jsonl)
file(REMOVE ${record})
set(check ${HEKLA} group-check --transport shm --sizes 0,7 --record ${record})

function(expect ranks dtypes wanted)
  execute_process(COMMAND ${check} --ranks ${ranks} ${dtypes} OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "all right [^,]* s before," known "${said}")
  string(REGEX MATCHALL "all right [^,]* s," ran "${said}")
  list(LENGTH known known)
  list(LENGTH ran ran)
  if(NOT "${known} known, ${ran} run" STREQUAL wanted)
    message(FATAL_ERROR "${known} known, ${ran} run instead of ${wanted}:\n${said}")
  endif()
endfunction()

expect(2 "--dtype;f32" "0 known, 2 run")
file(APPEND ${record} "{\"transport\": \"shm\", \"ran")
expect(2 "--dtype;f32;--dtype;i1" "2 known, 2 run")
expect(2 "--dtype;f32;--dtype;i1" "4 known, 0 run")
# Of other conditions nothing is known.
expect(2 "--dtype;f32;--filter;broadcast" "0 known, 2 run")
