// Package diskusage measures the disk usage of pods on request: file systems by
// statfs(2), and directories on a shared file system by a walk. The cost of walks is
// bounded per request and per node; an unfinished walk continues at the next request.
//
// The package depends neither on volumes nor on the runtime: the caller passes the places of
// a pod (Pod). Containers write into most of them as root, so their content is
// hostile: a walk never leaves its place, enters no mount below it, and neither a
// million files nor a file system that does not respond blocks a request for long.
//
// The stats are those of the kubelet 1.36 (pkg/volume/metrics_du.go,
// pkg/volume/metrics_statfs.go, stats/cri_stats_provider.go), with these exceptions:
// writable layers are found in the mount table and walked, instead of requested from
// the runtime; unknown values are omitted instead of 0; and each link of a file
// counts its fraction of the file.
package diskusage
