// Package podlogs reads the log files that CRI runtimes write: the last
// lines, what is new since a time, and what is still to come, across
// rotation and into the next container's file. It owns the file format and
// the layout of the log folder
//
//	<root>/<namespace>_<name>_<uid>/<container>/<restarts>.log
//
// which are the kubelet's. It never writes, holds a bounded part of a file
// in memory, and takes every byte of the files as hostile.
package podlogs
