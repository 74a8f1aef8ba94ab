package apiobjects

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// TestObjectsAreAsNewAsTheirPod checks that what a new pod refers to is not
// older than the pod, whatever was read for others a moment before.
func TestObjectsAreAsNewAsTheirPod(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetFaults(apiservertest.Faults{Before: l.before, EmptyCache: true})
		first := podOf("first")
		l.SetReferencingPods([]*v1.Pod{first})
		read := func() {
			t.Helper()
			for _, r := range l.reads() {
				_ = r.do(t.Context())
			}
		}
		read()
		if all, err := l.Services(t.Context(), "ns"); err != nil || len(all) != 1 {
			t.Errorf("services from a memory that lags: %v, %v", all, err)
		}
		l.made()

		// Everything changes, and then a pod comes that refers to it.
		l.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.2"}})
		l.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "runc"})
		l.Put(claimNamed("claim", "other"))
		l.Put(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume", Labels: map[string]string{"new": "yes"}}})
		l.SetReferencingPods([]*v1.Pod{first.DeepCopy()}) // only a change of the first pod
		read()
		l.expect()
		second := podOf("second")
		l.SetReferencingPods([]*v1.Pod{first, second})
		l.expect() // nothing is asked before it is read
		if all, err := l.Services(t.Context(), "ns"); err != nil || len(all) != 2 {
			t.Errorf("services of the second pod: %d, %v, want 2", len(all), err)
		}
		if c, err := l.RuntimeClass(t.Context(), "class"); err != nil || c.Handler != "runc" {
			t.Errorf("class of the second pod: %+v, %v", c, err)
		}
		if c, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil || c.Spec.VolumeName != "other" {
			t.Errorf("claim of the second pod: %+v, %v", c, err)
		}
		if c, err := l.PersistentVolume(t.Context(), "volume"); err != nil || c.Labels["new"] != "yes" {
			t.Errorf("volume of the second pod: %+v, %v", c, err)
		}
		l.made()
		read()
		l.SetReferencingPods([]*v1.Pod{first, second})
		l.SetReferencingPods([]*v1.Pod{second})
		read()
		l.expect("get clustertrustbundles/bundle") // once for all of them
	})
}

// TestNewPodWhoseServicesAreBeingListed checks that a list which started before
// the pod was added is repeated, and only once for all waiting reads.
func TestNewPodWhoseServicesAreBeingListed(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetReferencingPods([]*v1.Pod{podWith("first")})
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		for range 3 {
			go func() {
				if _, err := l.Services(t.Context(), "ns"); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		l.SetReferencingPods([]*v1.Pod{podWith("first"), podWith("second"), podWith("third")})
		for range 3 {
			go func() {
				if _, err := l.Services(t.Context(), "ns"); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(hang)
		l.expect("list services/ns", "list services/ns")
	})
}

// TestPodsThatNeedNoServices checks that static pods and pods without service
// links cause no list.
func TestPodsThatNeedNoServices(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		first, no := podWith("first"), false
		l.SetReferencingPods([]*v1.Pod{first})
		if _, err := l.Services(t.Context(), "ns"); err != nil {
			t.Error(err)
		}
		l.made()
		without := podWith("without")
		without.Spec.EnableServiceLinks = &no
		mirror := podWith("mirror")
		mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
		l.SetReferencingPods([]*v1.Pod{first, without, mirror})
		if _, err := l.Services(t.Context(), "ns"); err != nil {
			t.Error(err)
		}
		l.expect()
	})
}

// TestImmutableMadeAnew checks that an immutable object which was deleted and
// made anew has its new content once no pod refers to the old one.
func TestImmutableMadeAnew(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		make := func(value string) {
			m, yes := configMap("a", value), true
			m.Immutable = &yes
			l.Put(m)
		}
		make("1")
		l.SetReferencingPods([]*v1.Pod{podWith("first", "a")})
		if got := l.text("a"); got != "1" {
			t.Errorf("read %q", got)
		}
		l.Remove(apiclient.ConfigMaps, "ns", "a")
		make("2")
		l.SetReferencingPods(nil)
		l.SetReferencingPods([]*v1.Pod{podWith("second", "a")})
		if got := l.text("a"); got != "2" {
			t.Errorf("the next pod reads %q, want 2", got)
		}
	})
}

// TestNewPodWithoutALink checks that a new pod gets what was last known while
// the server cannot be reached, and the newest when it can.
func TestNewPodWithoutALink(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetReferencingPods([]*v1.Pod{podWith("first")})
		if _, err := l.Services(t.Context(), "ns"); err != nil {
			t.Fatal(err)
		}
		l.set(func() { l.fail = errLink })
		l.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}})
		l.SetReferencingPods([]*v1.Pod{podWith("first"), podWith("second")})
		if all, err := l.Services(t.Context(), "ns"); err != nil || len(all) != 1 {
			t.Errorf("without a link: %d services, %v", len(all), err)
		}
		l.set(func() { l.fail = nil })
		l.SetReferencingPods([]*v1.Pod{podWith("first"), podWith("second"), podWith("third")})
		if all, err := l.Services(t.Context(), "ns"); err != nil || len(all) != 2 {
			t.Errorf("with the link again: %d services, %v", len(all), err)
		}
	})
}
