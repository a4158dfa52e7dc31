/* SPDX-License-Identifier: Apache-2.0 */
/* The zstd filter (32015) as a plugin of HDF5, for readers of compressed checkpoints.
 *
 * HDF5 finds it in the folders of HDF5_PLUGIN_PATH. It is not linked with libhdf5: whichever one
 * loads it gives it nothing but bytes, in memory of malloc. Registered for the filter by the HDF
 * Group; a frame names its size, so that no parameter is needed to read.
 */
#include <H5PLextern.h>
#include <hdf5.h>
#include <stdlib.h>
#include <zstd.h>

/* More than a chunk may have. */
#define HEKLA_LIMIT (1ull << 32)

static size_t failed(void* buffer) {
  free(buffer);
  return 0;
}

static size_t replace(size_t result, void* made, size_t room, size_t* buf_size, void** buf) {
  if (ZSTD_isError(result)) return failed(made);
  free(*buf);
  *buf = made;
  *buf_size = room;
  return result;
}

static size_t filter(unsigned flags, size_t cd_nelmts, const unsigned cd_values[], size_t nbytes,
                     size_t* buf_size, void** buf) {
  if (flags & H5Z_FLAG_REVERSE) {
    const unsigned long long size = ZSTD_getFrameContentSize(*buf, nbytes);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size == 0 ||
        size > HEKLA_LIMIT) {
      return 0;
    }
    void* made = malloc((size_t)size);
    if (made == NULL) return 0;
    return replace(ZSTD_decompress(made, (size_t)size, *buf, nbytes), made, (size_t)size, buf_size,
                   buf);
  }
  const int level = cd_nelmts > 0 ? (int)cd_values[0] : 3;
  const size_t room = ZSTD_compressBound(nbytes);
  void* made = malloc(room);
  if (made == NULL) return 0;
  return replace(ZSTD_compress(made, room, *buf, nbytes, level), made, room, buf_size, buf);
}

static const H5Z_class2_t filter_class = {
    H5Z_CLASS_T_VERS, 32015, 1, 1, "zstd (Hekla)", NULL, NULL, filter,
};

H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }
const void* H5PLget_plugin_info(void) { return &filter_class; }
