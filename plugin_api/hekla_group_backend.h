/* SPDX-License-Identifier: Apache-2.0 */
/* A transport of others for Hekla's process groups: bytes between the processes of a run, as a C
 * table in a library that HEKLA_GROUP_BACKENDS names.
 *
 * A backend has streams of bytes, one in each direction between each two processes. All else is
 * made of them by Hekla: collectives, messages, groups of some ranks, deadlines, the comparison of
 * calls. `hekla group-check --transport NAME` checks it all; examples/group_backend is a whole one.
 *
 * Functions that may fail return 0, or another number after they have written why to `error`. No
 * exception crosses. Calls come from several threads at once: for each other process one that sends
 * and one that receives. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library of another number is refused. */
#define HEKLA_GROUP_BACKEND_ABI 1
#define HEKLA_GROUP_BACKEND_ERROR_BYTES 500

/* Where the processes of a group find each other. Keys are this group's alone; a key is put once.
 * Used while `create` runs, by its thread. */
typedef struct hekla_backend_store {
  void* context;
  /* Waits for the value, timeout_ms at most; of at most *bytes bytes, which becomes its size. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* value, size_t* bytes,
             char* error);
  int (*put)(void* context, const char* key, const void* value, size_t bytes, char* error);
} hekla_backend_store;

typedef struct hekla_backend_args {
  size_t struct_size;
  hekla_backend_store store;
  int32_t rank, size;
  const char* address; /* of this process's machine, by which the others reach it, in numbers: the
                          one that is wanted, else that of the route to where the processes meet, or
                          of the default route; IPv4 or IPv6; empty: there is none */
  int64_t timeout_ms;  /* for `create` */
} hekla_backend_args;

typedef struct hekla_backend_table {
  size_t struct_size;
  int32_t abi;
  const char* name;    /* by which users choose it: letters, digits, '_' */
  const char* devices; /* whose memory it reads and writes: "cpu" */
  /* Waits until all processes have come. */
  int (*create)(const hekla_backend_args* args, void** backend, char* error);
  /* After `shut`; no call is under way. */
  void (*destroy)(void* backend);
  /* All of the bytes, in the order of the calls. They arrive once this has returned, also where
   * this process ends in good order. Another process that does not receive may hold it up. */
  int (*send)(void* backend, int32_t to, const void* data, size_t bytes, char* error);
  /* What has come from a process, `capacity` bytes at most: how many; 0: nothing has in timeout_ms;
   * -1: it has died, has left, or cannot be reached any more. */
  int64_t (*receive)(void* backend, int32_t from, void* data, size_t capacity, int64_t timeout_ms,
                     char* error);
  /* Calls under way and later ones fail, at once; the others see that this process has left. */
  void (*shut)(void* backend);
} hekla_backend_table;

/* The one symbol of the library that is looked for. `abi`: the caller's; null: it is none that the
 * library has. */
#define HEKLA_GROUP_BACKEND_SYMBOL "hekla_group_backend"
typedef const hekla_backend_table* hekla_group_backend_function(int32_t abi);

#ifdef __cplusplus
}
#endif
