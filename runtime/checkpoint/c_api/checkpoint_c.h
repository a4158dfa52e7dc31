/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints for other languages: states, saving, restoring, through plain C.
 *
 * libhekla_checkpoint.so exports these functions alone. A function returns 0 or the number of a
 * StatusCode (runtime/base/status.h); hekla_checkpoint_error() then has the message, for the thread
 * that called. Handles are made by ..._create, ..._open, ..._save and ended by ..._destroy; a null
 * handle may be destroyed. Texts that come out belong to the caller: hekla_checkpoint_free. Arrays
 * of int64 are row major lists of dimensions. Handles may be used from any thread, a state from one
 * at a time. No exception crosses.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct hekla_checkpoint_state hekla_checkpoint_state;
typedef struct hekla_checkpoint_step hekla_checkpoint_step;
typedef struct hekla_checkpoint_manager hekla_checkpoint_manager;
typedef struct hekla_checkpoint_save_handle hekla_checkpoint_save_handle;
typedef struct hekla_checkpoint_restored hekla_checkpoint_restored;

const char* hekla_checkpoint_error(void);
/* What a callback says before it returns non-zero. */
void hekla_checkpoint_set_error(const char* message);
void hekla_checkpoint_free(char* text);

/* A state: what one rank gives to a save (runtime/checkpoint/save/state.h). */
int hekla_checkpoint_state_create(hekla_checkpoint_state** state);
void hekla_checkpoint_state_destroy(hekla_checkpoint_state* state);
/* `boxes`: box_count rows of 1 + 2 * rank numbers, a holder and its box (start, size); all holders
 * of the group, -1 for every rank. box_count 0: every rank holds all of it. */
int hekla_checkpoint_state_add_tensor(hekla_checkpoint_state* state, const char* name,
                                      const char* dtype, int32_t rank, const int64_t* shape,
                                      const char* spec, int32_t world_size, int64_t box_count,
                                      const int64_t* boxes);
/* Copies bytes [offset, offset + bytes) to `into`; 0, or 1 after hekla_checkpoint_set_error. Called
 * from other threads, one at a time for one array. */
typedef int (*hekla_checkpoint_read)(void* context, int64_t offset, void* into, int64_t bytes);
typedef void (*hekla_checkpoint_release)(void* context);
/* A box of the tensor added last that this rank holds. Its bytes are at `data`, dense and row
 * major, or null and come from `read`. `is_mutable`: somebody may write there once save has
 * returned. `release` is called once, from any thread, when nobody reads any more, also after an
 * error. */
int hekla_checkpoint_state_add_box(hekla_checkpoint_state* state, const int64_t* start,
                                   const int64_t* size, const void* data, int64_t bytes,
                                   int32_t is_mutable, hekla_checkpoint_read read,
                                   hekla_checkpoint_release release, void* context);
/* While a thread has switched holds on, the addresses that clients of Hekla's plugins tell it of
 * buffers are holds (plugin_api/hekla_holds.h). `is_there`: such a plugin is loaded. */
int hekla_checkpoint_holds(int32_t is_on, int32_t* is_there);
/* Like add_box: the box is what `pointer` holds, which is released in any case. `is_hold` 0: it is
 * no hold, and nothing was added. */
int hekla_checkpoint_state_add_held_box(hekla_checkpoint_state* state, const int64_t* start,
                                        const int64_t* size, uint64_t pointer, int64_t bytes,
                                        int32_t* is_hold);
int hekla_checkpoint_state_add_bool(hekla_checkpoint_state* state, const char* name, int32_t value);
int hekla_checkpoint_state_add_int(hekla_checkpoint_state* state, const char* name, int64_t value);
int hekla_checkpoint_state_add_double(hekla_checkpoint_state* state, const char* name,
                                      double value);
int hekla_checkpoint_state_add_text(hekla_checkpoint_state* state, const char* name,
                                    const char* text, int64_t bytes);
int hekla_checkpoint_state_add_bytes(hekla_checkpoint_state* state, const char* name,
                                     const void* data, int64_t bytes);
int hekla_checkpoint_state_add_file(hekla_checkpoint_state* state, const char* name,
                                    const void* data, int64_t bytes, int32_t per_rank);

/* A committed step of the run in `root`, -1: the newest, verified as far as it is read; it is kept
 * from deletion until it is destroyed. Opening reads COMMIT and index alone. `verify`: "touched",
 * "full", "none". */
int hekla_checkpoint_step_open(const char* root, int64_t step, const char* verify,
                               hekla_checkpoint_step** opened);
void hekla_checkpoint_step_destroy(hekla_checkpoint_step* step);
/* JSON: {"step", "folder", "reason", "wall_time", "world_size", "metrics": {}, "tensors": [{"name",
 * "dtype", "shape", "spec"}], "files": names of what was given to the save, "items": the text of
 * extra/items.json or null}. */
int hekla_checkpoint_step_info(hekla_checkpoint_step* step, char** json);
/* Boxes of tensors into dense memory, read in one plan: names[i] into the bytes[i] bytes at
 * into[i]; `boxes` has start and size of each, one after another, as many numbers as each tensor
 * has dimensions. */
int hekla_checkpoint_step_read(hekla_checkpoint_step* step, int64_t count, const char* const* names,
                               const int64_t* boxes, void* const* into, const int64_t* bytes);
/* A file that was given to the save ("loader/position.json"); its bytes. */
int hekla_checkpoint_step_read_file(hekla_checkpoint_step* step, const char* name, char** data,
                                    int64_t* bytes);
int64_t hekla_checkpoint_step_bytes_read(hekla_checkpoint_step* step);

/* A manager (runtime/checkpoint/manager/checkpoint_manager.h). `options_json` is an object with any
 * of: save_interval, save_steps, save_seconds, continuous, min_interval_seconds, max_to_keep,
 * keep_period, keep_seconds, keep_newer_than_seconds, keep_steps, keep_best {metric, count, mode,
 * keep_without_metric}, min_valid, async_queue_size, on_busy, overwrite, preemption_signals,
 * preemption_grace_seconds, preemption_reuse_seconds, continue_on_error, max_failures, metadata,
 * staging_bytes, bandwidth_limit, background_bandwidth, save_priority, group_deadline_seconds,
 * frozen [pattern], tile_hints [[pattern, [size]]], compress [[pattern, none | zstd | auto]],
 * verify_after_write and check_replicas (none, sample, all). `world_size` -1: RANK, WORLD_SIZE and
 * HEKLA_STORE say.
 */
int hekla_checkpoint_manager_open(const char* root, const char* options_json, int32_t rank,
                                  int32_t world_size, const char* store,
                                  hekla_checkpoint_manager** opened);
void hekla_checkpoint_manager_destroy(hekla_checkpoint_manager* manager);
int hekla_checkpoint_manager_should_save(hekla_checkpoint_manager* manager, int64_t step,
                                         int32_t* should);
/* Takes what is in the state. `metrics_json`: an object of numbers. */
int hekla_checkpoint_manager_save(hekla_checkpoint_manager* manager, int64_t step,
                                  hekla_checkpoint_state* state, const char* metrics_json,
                                  hekla_checkpoint_save_handle** save);
int hekla_checkpoint_manager_save_now(hekla_checkpoint_manager* manager, int64_t step,
                                      hekla_checkpoint_state* state, const char* metrics_json);
/* Every rank gives a text and gets a JSON list of those of all. */
int hekla_checkpoint_manager_exchange(hekla_checkpoint_manager* manager, const char* text,
                                      char** json);
/* A JSON list, ascending. */
int hekla_checkpoint_manager_steps(hekla_checkpoint_manager* manager, char** json);
int hekla_checkpoint_manager_pin(hekla_checkpoint_manager* manager, int64_t step, int32_t pinned);
int hekla_checkpoint_manager_reached_preemption(hekla_checkpoint_manager* manager, int64_t step,
                                                int32_t* reached);
void hekla_checkpoint_manager_request_preemption(hekla_checkpoint_manager* manager);
int hekla_checkpoint_manager_save_for_preemption(hekla_checkpoint_manager* manager, int64_t step,
                                                 hekla_checkpoint_state* state, int32_t* exit_code);
/* Negative seconds: without a limit. */
int hekla_checkpoint_manager_wait(hekla_checkpoint_manager* manager, double seconds);
int hekla_checkpoint_manager_close(hekla_checkpoint_manager* manager);
/* `step` -1: the newest. `request_json`: {"targets": [{"name", "dtype", "shape", "boxes": [[start,
 * size]]}], "only": [], "renames": [[from, to]], "strict": true}, all of it optional. */
int hekla_checkpoint_manager_restore(hekla_checkpoint_manager* manager, int64_t step,
                                     const char* request_json,
                                     hekla_checkpoint_restored** restored);
void hekla_checkpoint_restored_destroy(hekla_checkpoint_restored* restored);
/* JSON: {"step", "tensors": [{"name", "boxes": [{"start", "dims", "dtype"}]}], "missing",
 * "unexpected", "mismatched", "bytes_wanted", "bytes_read", "items": text}. */
int hekla_checkpoint_restored_info(hekla_checkpoint_restored* restored, char** json);
/* Memory of `restored`, which may be written. */
int hekla_checkpoint_restored_data(hekla_checkpoint_restored* restored, int64_t tensor, int64_t box,
                                   void** data, int64_t* bytes);

/* A save under way. */
void hekla_checkpoint_save_destroy(hekla_checkpoint_save_handle* save);
const char* hekla_checkpoint_save_stage(hekla_checkpoint_save_handle* save);
void hekla_checkpoint_save_progress(hekla_checkpoint_save_handle* save, int64_t* done,
                                    int64_t* total, double* blocked_seconds, double* total_seconds);
int hekla_checkpoint_save_wait(hekla_checkpoint_save_handle* save, double seconds,
                               int32_t staged_only);
int hekla_checkpoint_save_error(hekla_checkpoint_save_handle* save);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
