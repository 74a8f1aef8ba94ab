// Package diskusage measures what pods take on disks, when somebody asks: file
// systems by statfs(2), directories on a shared one by a walk whose cost is
// bounded for each request and for the node, and which goes on at the next
// request where it stopped.
//
// It knows no volumes and no runtime: it is told which places a pod has (Pod),
// and owns how they are measured. Containers write into most of them as root,
// so what lies there is hostile: nothing is followed out of a place, no mount
// below it is entered, and neither a million files nor a file system that does
// not answer holds up whoever asks.
//
// The figures are those of the kubelet 1.36 (pkg/volume/metrics_du.go,
// pkg/volume/metrics_statfs.go, stats/cri_stats_provider.go), except that
// writable layers are walked, by the mount table, in place of asking the
// runtime for them, that what cannot be known is left out in place of being 0,
// and that each link of a file counts its part of it.
package diskusage
