package registration

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const nodeID = "csi.volume.kubernetes.io/nodeid"

// ofAKubelet puts a node as a kubelet with CSI drivers has left it.
func (l *lab) ofAKubelet() {
	l.api.Put(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{nodeID: `{"disk.example.com":"n"}`, "other": "x"}},
		Status: v1.NodeStatus{
			VolumesInUse: []v1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^h-1"},
			Addresses:    []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.168.1.20"}, {Type: v1.NodeHostName, Address: name}},
		},
	})
	l.api.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (l *lab) has() (volumes int, annotation bool) {
	n := l.api.node()
	_, annotation = n.Annotations[nodeID]
	return len(n.Status.VolumesInUse), annotation
}

// TestStaleVolumesAreDropped: the Node lists volumes, and nothing of them is on
// disk.
func TestStaleVolumesAreDropped(t *testing.T) {
	csinodes := schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}
	for _, tt := range []struct {
		name   string
		delete error
	}{
		{"deleted", nil},
		{"none", apierrors.NewNotFound(csinodes, name)},
		{"may not", apierrors.NewForbidden(csinodes, name, errors.New("no"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(l *lab) {
				l.ofAKubelet()
				l.api.noDelete = tt.delete
				l.config.HasKubeletVolumes = func() (bool, error) { return false, nil }
			}, func(l *lab) {
				n := l.calls(time.Hour)
				if volumes, annotation := l.has(); volumes > 0 || annotation {
					t.Errorf("%d volumes in use, annotation %v", volumes, annotation)
				}
				if l.api.node().Annotations["other"] != "x" {
					t.Error("another annotation is gone")
				}
				if n["delete csinodes"] != 1 || n["get csinodes"] > 0 {
					t.Errorf("requests %v", n)
				}
			})
		})
	}
}

// TestVolumesStayWhileTheyAreOnDisk also covers unknown volumes.
func TestVolumesStayWhileTheyAreOnDisk(t *testing.T) {
	var left atomic.Bool
	left.Store(true)
	run(t, func(l *lab) {
		l.ofAKubelet()
		l.config.HasKubeletVolumes = func() (bool, error) { return left.Load(), nil }
	}, func(l *lab) {
		n := l.calls(time.Hour)
		if volumes, annotation := l.has(); volumes != 1 || !annotation || n["delete csinodes"] > 0 {
			t.Errorf("%d volumes in use, annotation %v, requests %v", volumes, annotation, n)
		}
		// One at the start, and then at least 3 min 45 s after the last one.
		if reports := n["patch nodes/status"]; reports > 17 {
			t.Errorf("%d reports in an hour", reports)
		}
		left.Store(false) // somebody has taken them away
		l.calls(6 * time.Minute)
		if volumes, annotation := l.has(); volumes > 0 || annotation {
			t.Errorf("%d volumes in use, annotation %v", volumes, annotation)
		}
	})
	run(t, func(l *lab) {
		l.ofAKubelet()
		l.config.HasKubeletVolumes = func() (bool, error) { return false, errors.New("no mount table") }
	}, func(l *lab) {
		l.calls(time.Hour)
		if volumes, annotation := l.has(); volumes != 1 || !annotation {
			t.Errorf("not known: %d volumes in use, annotation %v", volumes, annotation)
		}
	})
}

// TestAnnotationStaysUntilTheCSINodeIsGone: the next start needs the annotation.
func TestAnnotationStaysUntilTheCSINodeIsGone(t *testing.T) {
	run(t, func(l *lab) {
		l.ofAKubelet()
		l.api.noDelete = errLink
		l.config.HasKubeletVolumes = func() (bool, error) { return false, nil }
	}, func(l *lab) {
		l.calls(time.Hour)
		if volumes, annotation := l.has(); volumes > 0 || !annotation {
			t.Errorf("%d volumes in use, annotation %v", volumes, annotation)
		}
		l.api.mu.Lock()
		l.api.noDelete = nil
		l.api.mu.Unlock()
		l.calls(6 * time.Minute)
		if _, annotation := l.has(); annotation {
			t.Error("the annotation is there still")
		}
	})
}

// TestNoVolumesCostNothing: the disk is not read for a node that lists no volumes.
func TestNoVolumesCostNothing(t *testing.T) {
	run(t, func(l *lab) {
		l.config.HasKubeletVolumes = func() (bool, error) {
			t.Error("the disk is looked at")
			return false, nil
		}
	}, func(l *lab) {
		if n := l.calls(time.Hour); n["delete csinodes"] > 0 {
			t.Errorf("requests %v", n)
		}
	})
}
