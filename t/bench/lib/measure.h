#ifndef MEASURE_H
#define MEASURE_H


void measure_die(const char *what) __attribute__((noreturn));
double measure_now(void);             /* us */
long measure_count(const char *text);

/* core.c: STATE SESSION COUNT ARG... */
int measure_core(int argc, char **argv);


#endif
