/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups for other languages: runtime/process_group/process_group.h through plain C.
 *
 * libhekla_process_group.so exports these functions alone. A function that returns int returns 0 or
 * the number of a StatusCode (runtime/base/status.h); hekla_group_error() then has the message, for
 * the thread that called. Groups and works are made through the last argument and ended by
 * ..._destroy; a null one may be destroyed. All of them may be used from any thread, a group's
 * collective calls in the same order on all ranks. No exception crosses.
 *
 * Times are milliseconds; a negative one is the group's own for a call, none for a wait.
 *
 * Arrays are dense host memory of the caller's, who leaves it alone until the work is done. `keep`
 * 0: what is sent is copied first. Another number: the memory is sent as it is, and the number
 * comes out of hekla_group_finished once nobody looks at the memory any more; after a call that
 * failed that may be a while later. The caller keeps the memory until then.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Of this header; a library of another number has other functions or arguments. */
#define HEKLA_GROUP_VERSION 4
int32_t hekla_group_version(void);

typedef struct hekla_group hekla_group;
typedef struct hekla_group_work hekla_group_work;
typedef struct hekla_group_value hekla_group_value;

const char* hekla_group_error(void);
/* What a callback says before it returns non-zero. */
void hekla_group_set_error(const char* message);

/* Numbers for the calls below, 0 and -1 where there is no such name: of a dtype ("f32", "bf16",
 * "complex<f32>"; runtime/base/dtype.h), of a reduction ("sum", "premul_sum"; reduction.h). */
int32_t hekla_group_dtype(const char* name);
int32_t hekla_group_reduce_op(const char* name);

/* A store that the caller has, through which the ranks find each other while a group is made. The
 * functions are called from any thread until `release`, which is called once, also where no group
 * comes of it, and return 0 or a StatusCode after hekla_group_set_error. */
typedef struct hekla_group_store {
  void* context;
  /* Waits until there is a value, no longer than timeout_ms (DEADLINE_EXCEEDED), and gives it to
   * hekla_group_value_set. timeout_ms 0: NOT_FOUND at once where there is none. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, hekla_group_value* value);
  int (*put)(void* context, const char* key, const void* value, int64_t bytes);
  void (*release)(void* context);
} hekla_group_store;
void hekla_group_value_set(hekla_group_value* value, const void* data, int64_t bytes);

/* `name` is in messages; `engine` chooses the transport ("auto", "auto_ucx", "shm", "gloo", "ucx"),
 * null: auto.
 * Waits for all ranks, no longer than timeout_ms, which is also that of the calls. */
int hekla_group_create(const hekla_group_store* store, int32_t rank, int32_t size, const char* name,
                       const char* engine, int64_t timeout_ms, hekla_group** group);
/* The group of all processes of a run, found by an address (init.h: env://, tcp://HOST:PORT,
 * file://DIR); null: env://. The rest as above. */
int hekla_group_init(const char* method, const char* name, const char* engine, int64_t timeout_ms,
                     hekla_group** group);
/* Of a group that is not closed; else -1. */
int32_t hekla_group_rank(hekla_group* group);
int32_t hekla_group_size(hekla_group* group);
/* A group of some of a group's ranks, in that order, over the same connections; those alone call,
 * this rank among them, with one name, which the same ranks may use again. Waits for all of them
 * where they share memory. */
int hekla_group_subgroup(hekla_group* parent, const char* name, const int32_t* ranks, int32_t count,
                         int64_t timeout_ms, hekla_group** group);
/* Leaves: calls under way and later ones end with CANCELLED, no thread of the group runs any more
 * where no other thread is in a call. Not from a callback. Works may outlive it. */
void hekla_group_close(hekla_group* group);
/* The same, and the handle ends. */
void hekla_group_destroy(hekla_group* group);
/* A collective, of which `call` says what it would have been, that the caller does not make since
 * it has refused an argument itself: where the others have made it, it fails at once with the rank
 * and the reason, unless they refuse it too. */
int hekla_group_refuse(hekla_group* group, const char* call, const char* reason);
/* Ends the group on all ranks. */
int hekla_group_abort(hekla_group* group, const char* reason);
/* Why the group has ended; 0: it has not. */
int hekla_group_status(hekla_group* group);
/* How many collective calls there have been. */
int hekla_group_sequence(hekla_group* group, int64_t* sequence);

typedef struct hekla_group_array {
  void* data; /* what is only read is not written */
  int64_t count;
  int32_t dtype;
} hekla_group_array;

/* The calls of ProcessGroup, with its rules for counts, places and errors. `op` and `factor`: a
 * Reduction, the factor of premul_sum alone. An argument that a call refuses is an error of the
 * work, not of the function. */
int hekla_group_broadcast(hekla_group* group, const hekla_group_array* x, int32_t root,
                          int64_t timeout_ms, uint64_t keep, hekla_group_work** work);
int hekla_group_all_reduce(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int32_t op, double factor,
                           int64_t timeout_ms, uint64_t keep, hekla_group_work** work);
int hekla_group_reduce(hekla_group* group, const hekla_group_array* x, int32_t root, int32_t op,
                       double factor, int64_t timeout_ms, uint64_t keep, hekla_group_work** work);
int hekla_group_all_gather(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work);
/* `out` of gather and `in` of scatter may be null on ranks that are not the root. */
int hekla_group_gather(hekla_group* group, const hekla_group_array* out,
                       const hekla_group_array* in, int32_t root, int64_t timeout_ms, uint64_t keep,
                       hekla_group_work** work);
int hekla_group_scatter(hekla_group* group, const hekla_group_array* out,
                        const hekla_group_array* in, int32_t root, int64_t timeout_ms,
                        uint64_t keep, hekla_group_work** work);
int hekla_group_reduce_scatter(hekla_group* group, const hekla_group_array* out,
                               const hekla_group_array* in, int32_t op, double factor,
                               int64_t timeout_ms, uint64_t keep, hekla_group_work** work);
/* Splits: as many numbers as there are ranks, or both null for equal parts. */
int hekla_group_all_to_all(hekla_group* group, const hekla_group_array* out,
                           const hekla_group_array* in, const int64_t* out_splits,
                           const int64_t* in_splits, int64_t timeout_ms, uint64_t keep,
                           hekla_group_work** work);
int hekla_group_barrier(hekla_group* group, int64_t timeout_ms, hekla_group_work** work);
/* Waits; the error names all ranks that have not come. */
int hekla_group_monitored_barrier(hekla_group* group, int64_t timeout_ms);
int hekla_group_send(hekla_group* group, const hekla_group_array* x, int32_t to, uint64_t tag,
                     int64_t timeout_ms, uint64_t keep, hekla_group_work** work);
/* `from` -1: any rank. */
int hekla_group_receive(hekla_group* group, const hekla_group_array* x, int32_t from, uint64_t tag,
                        int64_t timeout_ms, uint64_t keep, hekla_group_work** work);

/* The work goes on without its handle. */
void hekla_group_work_destroy(hekla_group_work* work);
/* What it ended with; DEADLINE_EXCEEDED where it has not after timeout_ms, it then goes on. */
int hekla_group_work_wait(hekla_group_work* work, int64_t timeout_ms);
/* Whether it is done; then its error is hekla_group_work_wait's. */
int32_t hekla_group_work_test(hekla_group_work* work);
/* The rank that a received message came from, -1: none. */
int32_t hekla_group_work_source(hekla_group_work* work);
/* Calls once when it is done, at once where it is, else from a thread of the group: with 0, or the
 * code and the message. Brief; it does not wait and destroys no group. */
int hekla_group_work_then(hekla_group_work* work,
                          void (*callback)(void* context, int code, const char* message),
                          void* context);

/* Collectives that this thread makes on the group between the two go together
 * (ProcessGroup::begin_coalescing): their works are done when the second's is, and may not be
 * waited for before; what waits by itself is refused. Their time is the second's. */
int hekla_group_coalesce_begin(hekla_group* group);
int hekla_group_coalesce_end(hekla_group* group, int64_t timeout_ms, hekla_group_work** work);

/* Data parallelism (data_parallel/gradient_buckets.h, sharded_optimizer.h): gradients of parameters
 * are averaged or scattered in buckets as they come. */
typedef struct hekla_group_buckets hekla_group_buckets;
typedef struct hekla_group_parameter {
  const char* name; /* for messages */
  int64_t count;
  int32_t dtype;
} hekla_group_parameter;
typedef struct hekla_group_bucket_options {
  int64_t first_bytes, other_bytes; /* of the first bucket and of the others */
  double factor;
  int64_t timeout_ms; /* of each call; -1: the group's */
  int32_t op;         /* a reduction, with `factor` */
  int32_t missing_is_zero;
  int32_t is_sharded; /* a ShardedOptimizer, with `states` arrays of state */
  int32_t state_count;
  const int32_t* states; /* dtypes; 0: that of the parameter */
} hekla_group_bucket_options;
/* Collective: waits for all ranks, whose parameters and options must be the same. It keeps the
 * group alive, whose handle may end before. */
int hekla_group_buckets_create(hekla_group* group, const hekla_group_parameter* parameters,
                               int32_t count, const hekla_group_bucket_options* options,
                               hekla_group_buckets** buckets);
void hekla_group_buckets_destroy(hekla_group_buckets* buckets);
/* Memory that stays where it is as long as the buckets: of a gradient, and of a parameter where
 * they are sharded. */
int hekla_group_buckets_gradient(hekla_group_buckets* buckets, int32_t i, hekla_group_array* array);
int hekla_group_buckets_parameter(hekla_group_buckets* buckets, int32_t i,
                                  hekla_group_array* array);
/* Gradient i is about to be written, by the caller alone. INVALID_ARGUMENT: it has come already in
 * this step, or another caller writes it. From any thread. */
int hekla_group_buckets_claim(hekla_group_buckets* buckets, int32_t i);
/* Gradient i is written, and left alone until finish or step. From any thread. */
int hekla_group_buckets_ready(hekla_group_buckets* buckets, int32_t i);
/* Waits for all; where they are not sharded. */
int hekla_group_buckets_finish(hekla_group_buckets* buckets);
/* In place of finish or step: this rank has no gradients, for `reason`, with which the others' step
 * fails. Waits for what has gone; then a step may begin, where all ranks have done so. */
int hekla_group_buckets_abandon(hekla_group_buckets* buckets, const char* reason);
/* The next are for those that are sharded. */
typedef struct hekla_group_shard {
  int64_t step;
  hekla_group_array parameters, gradients;
  const hekla_group_array* states;
  int32_t state_count;
} hekla_group_shard;
/* `update` is called for each bucket; another number than 0, after hekla_group_set_error, is the
 * step's end on all ranks. */
int hekla_group_buckets_step(hekla_group_buckets* buckets,
                             int (*update)(void* context, const hekla_group_shard* shard),
                             void* context);
int hekla_group_buckets_broadcast_parameters(hekla_group_buckets* buckets, int32_t root);
/* An array of state, whole, to and from as many arrays as there are parameters; the first is
 * collective. */
int hekla_group_buckets_gather_state(hekla_group_buckets* buckets, int32_t which,
                                     const hekla_group_array* into);
int hekla_group_buckets_set_state(hekla_group_buckets* buckets, int32_t which,
                                  const hekla_group_array* from);
int64_t hekla_group_buckets_steps(hekla_group_buckets* buckets);
void hekla_group_buckets_set_steps(hekla_group_buckets* buckets, int64_t steps);
int64_t hekla_group_buckets_state_bytes(hekla_group_buckets* buckets);
/* How many buckets there are. */
int64_t hekla_group_buckets_count(hekla_group_buckets* buckets);

/* Numbers of `keep` whose memory is looked at no more, of all groups of the process; how many of
 * at most `capacity` there were. Each comes out once. */
int64_t hekla_group_finished(uint64_t* keeps, int64_t capacity);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
