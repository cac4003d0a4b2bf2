/* The commands of `knet`: each takes the words after its name and returns the exit code. */
#ifndef KN_CMD_H
#define KN_CMD_H

int kn__cmd_train(int argc, char **argv);
int kn__cmd_info(int argc, char **argv);
int kn__cmd_report(int argc, char **argv);
int kn__cmd_diff(int argc, char **argv);
int kn__cmd_replay(int argc, char **argv);

#endif
