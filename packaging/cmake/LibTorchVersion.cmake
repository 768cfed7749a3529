# The LibTorch that dslaunch is written against, whose c10d interfaces other versions do not share.
set(DSLAUNCH_LIBTORCH_VERSION 2.11)
