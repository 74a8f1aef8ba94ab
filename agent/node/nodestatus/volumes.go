package nodestatus

import v1 "k8s.io/api/core/v1"

// annotationCSINode holds the names of the node at its CSI drivers
// (pkg/volume/csi/nodeinfomanager).
const annotationCSINode = "csi.volume.kubernetes.io/nodeid"

// HasVolumes reports whether a node lists volumes in use of an earlier kubelet, and
// whether it lists CSI drivers, for which there is a CSINode.
func HasVolumes(n *v1.Node) (volumes, drivers bool) {
	_, drivers = n.Annotations[annotationCSINode]
	return len(n.Status.VolumesInUse) > 0, drivers
}

// DropVolumes removes the volumes in use from n, and with drivers the annotation of the
// CSI drivers. Controllers do not detach a volume that is in use.
func DropVolumes(n *v1.Node, drivers bool) {
	n.Status.VolumesInUse = nil
	if drivers {
		delete(n.Annotations, annotationCSINode)
	}
}
