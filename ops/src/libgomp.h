/* What we call of the OpenMP runtime, which is oneDNN's: our loops run on threads of our own
 * (host/parallel.c), and oneDNN's calls stay on the thread that makes them. Declared here because
 * the header comes with the compiler's own runtime, which may be another one. */
#ifndef KN_LIBGOMP_H
#define KN_LIBGOMP_H

int omp_get_max_threads(void);
void omp_set_num_threads(int n);
int omp_in_parallel(void);
int omp_get_num_places(void);
int omp_get_place_num_procs(int place);
void omp_get_place_proc_ids(int place, int *ids);

#endif
