// Waits in read() below known functions, in two threads, or runs: frames_program [run].
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile unsigned long counter;

void load_batch(int fd) {
  char byte;
  if (read(fd, &byte, 1) != 1) return;  // WAITS
  counter += byte;
}

void train(int fd) {
  load_batch(fd);
  ++counter;
}

void spin(void) {
  for (;;) ++counter;  // SPINS
}

void* background(void* fd) {
  train(*(int*)fd);
  return NULL;
}

int main(int argc, char** argv) {
  int ends[2];
  pthread_t thread;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (pipe(ends) != 0) return 1;
  pthread_create(&thread, NULL, &background, &ends[0]);
  if (write(STDOUT_FILENO, "up\n", 3) != 3) return 1;
  if (argc > 1 && strcmp(argv[1], "run") == 0) spin();
  train(ends[0]);
  return 0;
}
