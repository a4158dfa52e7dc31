/* SPDX-License-Identifier: Apache-2.0 */
/* A backend of process groups over TCP sockets: one connection between each two processes. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
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

/* A socket of the kind of a numeric address, of IPv4 or IPv6, which `use` binds or connects. */
static int open_socket(const char* host, const char* port, char* error,
                       int (*use)(int, const struct sockaddr*, socklen_t)) {
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                 .ai_socktype = SOCK_STREAM};
  struct addrinfo* found = NULL;
  const int wrong = getaddrinfo(host, port, &hints, &found);
  if (wrong != 0) {
    snprintf(error, HEKLA_GROUP_BACKEND_ERROR_BYTES, "%s: %s", host, gai_strerror(wrong));
    return -1;
  }
  const int made = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int is_used = made >= 0 && use(made, found->ai_addr, found->ai_addrlen) == 0;
  if (!is_used) fail(error, made < 0 ? "socket" : host);
  if (!is_used && made >= 0) close(made);
  freeaddrinfo(found);
  return is_used ? made : -1;
}

/* Rank r connects to all below it and says who it is; those above it connect to it. */
static int meet(struct sockets* own, const hekla_backend_args* args, const char* host,
                int listening, char* error) {
  char key[32], value[128];
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);
  if (listen(listening, args->size) != 0) return fail(error, "listen");
  if (getsockname(listening, (struct sockaddr*)&address, &length) != 0) return fail(error, "name");
  /* The port stands at the same place for both kinds. */
  const int own_port = ntohs(((const struct sockaddr_in*)&address)->sin_port);
  snprintf(key, sizeof(key), "%d", args->rank);
  snprintf(value, sizeof(value), "%s %d", host, own_port);
  if (args->store.put(args->store.context, key, value, strlen(value), error) != 0) return 1;
  for (int32_t r = 0; r < args->rank; ++r) {
    size_t bytes = sizeof(value) - 1;
    char other[64], port[16];
    snprintf(key, sizeof(key), "%d", r);
    if (args->store.get(args->store.context, key, args->timeout_ms, value, &bytes, error) != 0) {
      return 1;
    }
    value[bytes] = '\0';
    if (sscanf(value, "%63s %15s", other, port) != 2) return fail(error, value);
    own->to[r] = open_socket(other, port, error, connect);
    if (own->to[r] < 0) return 1;
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
  const char* host = args->address[0] == '\0' ? "127.0.0.1" : args->address;
  const int listening = open_socket(host, "0", error, bind);
  if (listening < 0 || meet(own, args, host, listening, error) != 0) {
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
