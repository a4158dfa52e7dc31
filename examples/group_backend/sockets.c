/* SPDX-License-Identifier: Apache-2.0 */
/* A backend of process groups over TCP sockets: one connection between each two processes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin_api/hekla_group_backend.h"

struct sockets {
  int32_t size;
  int* to; /* by rank; -1 for this process's own */
};

static int fail(char* error, const char* what) {
  snprintf(error, HEKLA_GROUP_BACKEND_ERROR_BYTES, "%s: %s", what, strerror(errno));
  return 1;
}

static void destroy(void* backend) {
  struct sockets* own = backend;
  if (own == NULL) return;
  for (int32_t r = 0; own->to != NULL && r < own->size; ++r) {
    if (own->to[r] >= 0) close(own->to[r]);
  }
  free(own->to);
  free(own);
}

static int wait_for(int socket, short what, int64_t timeout_ms) {
  struct pollfd polled = {socket, what, 0};
  int ready;
  do {
    ready = poll(&polled, 1, timeout_ms > 1000000000 ? -1 : (int)timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready;
}

static int send_to(int socket, const void* data, size_t bytes, char* error) {
  const char* at = data;
  while (bytes > 0) {
    const ssize_t count = send(socket, at, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(error, "send");
    at += count;
    bytes -= (size_t)count;
  }
  return 0;
}

/* Rank r connects to all below it and says who it is; those above it connect to it. */
static int meet(struct sockets* own, const hekla_backend_args* args, int listening, char* error) {
  char key[32], value[64];
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof(address);
  const char* host = args->address[0] == '\0' ? "127.0.0.1" : args->address;
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return fail(error, "address");
  if (bind(listening, (struct sockaddr*)&address, length) != 0) return fail(error, "bind");
  if (listen(listening, args->size) != 0) return fail(error, "listen");
  if (getsockname(listening, (struct sockaddr*)&address, &length) != 0) return fail(error, "name");
  snprintf(key, sizeof(key), "%d", args->rank);
  snprintf(value, sizeof(value), "%s %d", host, ntohs(address.sin_port));
  if (args->store.put(args->store.context, key, value, strlen(value), error) != 0) return 1;
  for (int32_t r = 0; r < args->rank; ++r) {
    size_t bytes = sizeof(value) - 1;
    char other[64];
    int port = 0;
    snprintf(key, sizeof(key), "%d", r);
    if (args->store.get(args->store.context, key, args->timeout_ms, value, &bytes, error) != 0) {
      return 1;
    }
    value[bytes] = '\0';
    if (sscanf(value, "%63s %d", other, &port) != 2) return fail(error, value);
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, other, &there.sin_addr) != 1) return fail(error, other);
    own->to[r] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (own->to[r] < 0) return fail(error, "socket");
    if (connect(own->to[r], (struct sockaddr*)&there, sizeof(there)) != 0) {
      return fail(error, "connect");
    }
    if (send_to(own->to[r], &args->rank, sizeof(args->rank), error) != 0) return 1;
  }
  for (int32_t left = args->size - 1 - args->rank; left > 0; --left) {
    int32_t who = -1;
    if (wait_for(listening, POLLIN, args->timeout_ms) <= 0) return fail(error, "waiting for ranks");
    const int accepted = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (accepted < 0) return fail(error, "accept");
    const int has_come = wait_for(accepted, POLLIN, args->timeout_ms) > 0 &&
                         recv(accepted, &who, sizeof(who), MSG_WAITALL) == sizeof(who);
    if (!has_come || who <= args->rank || who >= args->size || own->to[who] >= 0) {
      close(accepted);
      return fail(error, "somebody who is no rank has connected");
    }
    own->to[who] = accepted;
  }
  return 0;
}

static int create(const hekla_backend_args* args, void** backend, char* error) {
  struct sockets* own = calloc(1, sizeof(*own));
  if (own == NULL) return fail(error, "memory");
  own->size = args->size;
  own->to = malloc(sizeof(int) * (size_t)args->size);
  if (own->to == NULL) {
    destroy(own);
    return fail(error, "memory");
  }
  for (int32_t r = 0; r < args->size; ++r) own->to[r] = -1;
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listening < 0 || meet(own, args, listening, error) != 0) {
    if (listening < 0) fail(error, "socket");
    if (listening >= 0) close(listening);
    destroy(own);
    return 1;
  }
  close(listening);
  for (int32_t r = 0; r < args->size; ++r) {
    const int on = 1;
    if (own->to[r] >= 0) setsockopt(own->to[r], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  *backend = own;
  return 0;
}

static int send_bytes(void* backend, int32_t to, const void* data, size_t bytes, char* error) {
  const struct sockets* own = backend;
  return send_to(own->to[to], data, bytes, error);
}

static int64_t receive_bytes(void* backend, int32_t from, void* data, size_t capacity,
                             int64_t timeout_ms, char* error) {
  const struct sockets* own = backend;
  if (wait_for(own->to[from], POLLIN, timeout_ms) == 0) return 0;
  ssize_t count;
  do {
    count = recv(own->to[from], data, capacity, 0);
  } while (count < 0 && errno == EINTR);
  if (count > 0) return count;
  if (count == 0) errno = ECONNRESET;
  fail(error, "receive");
  return -1;
}

static void shut(void* backend) {
  const struct sockets* own = backend;
  for (int32_t r = 0; r < own->size; ++r) {
    if (own->to[r] >= 0) shutdown(own->to[r], SHUT_RDWR);
  }
}

__attribute__((visibility("default"))) const hekla_backend_table* hekla_group_backend(int32_t abi) {
  static const hekla_backend_table table = {
      sizeof(table), HEKLA_GROUP_BACKEND_ABI, "sockets", "cpu", create, destroy,
      send_bytes,    receive_bytes,           shut};
  return abi == HEKLA_GROUP_BACKEND_ABI ? &table : NULL;
}
