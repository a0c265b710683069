// Preloaded into the browser: a terminal (pty) has no modem lines, and refuses to set them. DTR follows the opening of the port anyway.
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void *pointer = va_arg(arguments, void *);
  va_end(arguments);
  switch (request) {
    case TIOCMBIS:
    case TIOCMBIC:
    case TIOCMSET:
      return 0;
    case TIOCMGET:
      *(int *)pointer = TIOCM_CTS | TIOCM_DSR | TIOCM_CAR;
      return 0;
    default:
      return (int)syscall(SYS_ioctl, fd, request, pointer);
  }
}
