//go:build cluster

package cluster

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/suites/cluster/ledger"
)

// Paths of the API server.
const (
	podsPath = "/api/v1" + namespace + "pods"
	mapsPath = "/api/v1" + namespace + "configmaps"
	jobsPath = "/apis/batch/v1" + namespace + "jobs"
)

// Bounds of how many pods there are at a time beside the two that stay.
const (
	fewPods  = 2
	manyPods = 4
	manyJobs = 2
)

// shared is a ConfigMap that many pods use, keeper a prefix of the names of
// pods that live through all power cuts.
const (
	shared = "shared"
	keeper = "keeper-"
)

// complete is what a container does first: without all that the pod refers to
// it ends, and its restarts tell.
const complete = `[ "$PASSWORD" = s3cret ] && [ -n "$VERSION" ] && [ -s /settings/version ] && [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] || exit 1; `

// populate makes what is there from the first power cut to the last.
func (s *soak) populate() {
	s.c.Apply(s.T, "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {password: s3cret}\n")
	s.setVersion(shared, http.MethodPost)
	s.createPod("pair", keeper+"pair")
	s.createPod("plain", keeper+"plain")
}

// setVersion gives a ConfigMap its next version.
func (s *soak) setVersion(name, method string) {
	path := mapsPath
	if method == http.MethodPut {
		path += "/" + name
	}
	s.rest(method, path, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{ledger.VersionKey: strconv.Itoa(s.ledger.Next(name))},
	}, nil)
}

// container is one of a pod whose volume settings is of a ConfigMap.
func container(name, configMap, script string) corev1.Container {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	return corev1.Container{
		Name: name, Image: board.BusyboxImage, Command: []string{"sh", "-c", script},
		Env: []corev1.EnvVar{
			{Name: "VERSION", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref(configMap), Key: ledger.VersionKey}}},
			{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("keys"), Key: "password"}}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}},
	}
}

// podSpec is that of a pod on the board.
func podSpec(configMap string, containers ...corev1.Container) corev1.PodSpec {
	second := int64(1)
	return corev1.PodSpec{
		NodeName: name, TerminationGracePeriodSeconds: &second, Containers: containers,
		// A board that is offline for several boots in a row keeps its pods.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
		}}},
	}
}

// createPod makes a pod of a kind and, unless it uses the shared one, its
// ConfigMap.
func (s *soak) createPod(kind, pod string) {
	const stays = complete + "exec sleep 1000000"
	configMap := pod
	var spec corev1.PodSpec
	switch kind {
	case "plain":
		spec = podSpec(configMap, container("main", configMap, stays))
	case "polite":
		spec = podSpec(configMap, container("main", configMap, complete+"trap 'exit 0' TERM; while :; do sleep 1; done"))
	case "pair":
		configMap = shared
		spec = podSpec(configMap, container("a", configMap, stays), container("b", configMap, stays))
	case "init":
		spec = podSpec(configMap, container("main", configMap, "[ -s /work/version ] || exit 1; "+stays))
		fill := container("fill", configMap, complete+"cp /settings/version /work/version")
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		work := corev1.VolumeMount{Name: "work", MountPath: "/work"}
		fill.VolumeMounts = append(fill.VolumeMounts, work)
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, work)
		spec.InitContainers = []corev1.Container{fill}
	}
	if configMap != shared {
		s.setVersion(configMap, http.MethodPost)
	}
	s.rest(http.MethodPost, podsPath, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: spec}, nil)
	s.observe()
}

// newPod makes a pod of any kind under a new name.
func (s *soak) newPod() string {
	kind := []string{"plain", "polite", "pair", "init"}[s.IntN(4)]
	s.number++
	pod := fmt.Sprintf("%s-%d", kind, s.number)
	s.createPod(kind, pod)
	return pod
}

// newJob makes a Job whose pod ends by itself.
func (s *soak) newJob() string {
	s.number++
	job := fmt.Sprintf("job-%d", s.number)
	spec := podSpec(shared, container("main", shared, fmt.Sprintf("%s sleep %d", complete, s.IntN(4))))
	spec.RestartPolicy = []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}[s.IntN(2)]
	tries := int32(1000)
	s.rest(http.MethodPost, jobsPath, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: job},
		Spec:       batchv1.JobSpec{BackoffLimit: &tries, Template: corev1.PodTemplateSpec{Spec: spec}},
	}, nil)
	s.jobs = append(s.jobs, job)
	return job
}

// deleteJob deletes the oldest Job with its pods.
func (s *soak) deleteJob() string {
	job := s.jobs[0]
	s.jobs = s.jobs[1:]
	s.ledger.DoomJob(job)
	policy := metav1.DeletePropagationBackground
	s.rest(http.MethodDelete, jobsPath+"/"+job, &metav1.DeleteOptions{PropagationPolicy: &policy}, nil)
	return job
}

// victims are the pods that may be deleted.
func (s *soak) victims() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range s.ledger.Live() {
		if !strings.HasPrefix(p.Name, keeper) && p.Labels[ledger.JobLabel] == "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// deletePod deletes a pod and its ConfigMap, by force without waiting for the
// board.
func (s *soak) deletePod(p *corev1.Pod, force bool) {
	s.ledger.Doom(string(p.UID), force)
	options := &metav1.DeleteOptions{}
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	s.rest(http.MethodDelete, podsPath+"/"+p.Name, options, nil, http.StatusNotFound)
	if !strings.HasPrefix(p.Name, "pair-") {
		s.rest(http.MethodDelete, mapsPath+"/"+p.Name, nil, nil)
	}
}

// change does one thing to the board's pods, and says what.
func (s *soak) change() string {
	victims := s.victims()
	pick := func() *corev1.Pod { return victims[s.IntN(len(victims))] }
	what := s.IntN(100)
	switch n := len(victims); {
	case n < fewPods:
		what = 0
	case n > manyPods:
		what = 30
	}
	switch {
	case what < 20 || len(victims) == 0:
		return "created " + s.newPod()
	case what < 30:
		if len(s.jobs) >= manyJobs {
			return "deleted " + s.deleteJob()
		}
		return "created " + s.newJob()
	case what < 50:
		p := pick()
		s.deletePod(p, false)
		return "deleted " + p.Name
	case what < 60:
		// The next of this name has to wait for the board to end the former.
		p := pick()
		s.deletePod(p, true)
		kind, _, _ := strings.Cut(p.Name, "-")
		s.createPod(kind, p.Name)
		return "replaced " + p.Name
	case what < 65:
		p := pick()
		s.deletePod(p, true)
		return "deleted by force " + p.Name
	case what < 75:
		s.number++ // a deadline may only come nearer
		p := pick()
		patch := map[string]any{"spec": map[string]any{"activeDeadlineSeconds": 100_000_000 - s.number}}
		s.rest(http.MethodPatch, podsPath+"/"+p.Name, patch, nil)
		return "patched " + p.Name
	default:
		configMap := s.configMaps()[s.IntN(len(s.configMaps()))]
		s.setVersion(configMap, http.MethodPut)
		return "changed ConfigMap " + configMap
	}
}

// configMaps are those that pods which are to stay use.
func (s *soak) configMaps() []string {
	names := []string{shared, keeper + "plain"}
	for _, p := range s.victims() {
		if !strings.HasPrefix(p.Name, "pair-") {
			names = append(names, p.Name)
		}
	}
	return names
}

// awaitEvent changes something and waits until the API server has just heard
// of its outcome from the board, and says of what.
func (s *soak) awaitEvent() string {
	var what string
	var over func(p *corev1.Pod) bool // nil pod: it is gone
	switch victims := s.victims(); {
	case len(victims) > manyPods || len(victims) > 0 && s.IntN(3) == 0:
		p := victims[s.IntN(len(victims))]
		s.deletePod(p, false)
		uid := p.UID
		what, over = p.Name+" was gone", func(p *corev1.Pod) bool { return p == nil || p.UID != uid }
		return s.awaitPod(what, p.Name, over)
	case s.IntN(2) == 0:
		job := s.newJob()
		what, over = job+" had succeeded", func(p *corev1.Pod) bool {
			return p != nil && p.Status.Phase == corev1.PodSucceeded
		}
		return s.awaitPod(what, ledger.JobLabel+"="+job, over)
	default:
		pod := s.newPod()
		what, over = pod+" was running", func(p *corev1.Pod) bool {
			return p != nil && p.Status.Phase == corev1.PodRunning
		}
		return s.awaitPod(what, pod, over)
	}
}

// awaitPod looks for a pod by its name or a label of it.
func (s *soak) awaitPod(what, which string, over func(*corev1.Pod) bool) string {
	query := "?fieldSelector=metadata.name%3D" + which
	if key, value, ok := strings.Cut(which, "="); ok {
		query = "?labelSelector=" + strings.ReplaceAll(key, "/", "%2F") + "%3D" + value
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(30 * time.Millisecond) {
		var list corev1.PodList
		s.rest(http.MethodGet, podsPath+query, nil, &list)
		if len(list.Items) == 0 && over(nil) {
			return what
		}
		for i := range list.Items {
			if over(&list.Items[i]) {
				return what
			}
		}
	}
	s.failf("not within %v: %s", patience, what)
	return ""
}
