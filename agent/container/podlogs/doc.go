// Package podlogs reads the log files that CRI runtimes write. It can return
// the last lines or the lines since a time, and can follow a log across
// rotation and into the next container's file. It implements the file format
// and the layout of the log directory
//
//	<root>/<namespace>_<name>_<uid>/<container>/<restarts>.log
//
// which are the kubelet's. It never writes to a log, holds a bounded part of a file in
// memory, and treats the content of the files as untrusted.
package podlogs
