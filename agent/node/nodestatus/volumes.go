package nodestatus

import v1 "k8s.io/api/core/v1"

// annotationCSINode has the names of the node at its CSI drivers
// (pkg/volume/csi/nodeinfomanager).
const annotationCSINode = "csi.volume.kubernetes.io/nodeid"

// HasVolumes reports whether a node still tells of volumes that a kubelet had
// set up, and whether it tells of CSI drivers, which a CSINode stands beside.
func HasVolumes(n *v1.Node) (volumes, drivers bool) {
	_, drivers = n.Annotations[annotationCSINode]
	return len(n.Status.VolumesInUse) > 0, drivers
}

// DropVolumes takes the volumes in use from a node, and with drivers the CSI
// drivers. Until then no controller detaches those volumes.
func DropVolumes(n *v1.Node, drivers bool) {
	n.Status.VolumesInUse = nil
	if drivers {
		delete(n.Annotations, annotationCSINode)
	}
}
