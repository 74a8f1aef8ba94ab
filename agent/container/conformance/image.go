package conformance

import (
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testImageList(w *testEnv) {
	status, err := w.Runtime.ImageStatus(w.Context(), &runtimeapi.ImageSpec{Image: w.Image})
	w.ok("ImageStatus", err)
	list, err := w.Runtime.ListImages(w.Context(), nil)
	w.ok("ListImages", err)
	at := slices.IndexFunc(list, func(img *runtimeapi.Image) bool { return img.GetId() == status.GetId() })
	if at < 0 {
		w.Fatalf("the list lacks %q", status.GetId())
	}
	if img := list[at]; img.GetSize() == 0 || len(img.GetRepoTags()) == 0 {
		w.Errorf("the listed image has size %d and tags %v", img.GetSize(), img.GetRepoTags())
	}
	for _, img := range list {
		if img.GetId() == "" {
			w.Errorf("an image without an ID: %v", img)
		}
	}

	info, err := w.Runtime.ImageFsInfo(w.Context())
	w.ok("ImageFsInfo", err)
	if len(info.GetImageFilesystems()) == 0 {
		w.Fatal("there is no image filesystem")
	}
	for _, fs := range info.GetImageFilesystems() {
		if !filepath.IsAbs(fs.GetFsId().GetMountpoint()) || fs.GetUsedBytes() == nil {
			w.Errorf("the image filesystem is %v", fs)
		}
		if at := time.Unix(0, fs.GetTimestamp()); at.Before(time.Now().Add(-24*time.Hour)) || at.After(time.Now().Add(time.Hour)) {
			w.Errorf("the image filesystem was measured at %v", at)
		}
	}
}

func testImageRemove(w *testEnv) {
	for range 2 {
		w.ok("RemoveImage of an absent image", w.Runtime.RemoveImage(w.Context(), &runtimeapi.ImageSpec{Image: w.Absent}))
	}
	if w.Removable == "" {
		w.Skip("the environment names no image that may be removed")
	}
	spec := &runtimeapi.ImageSpec{Image: w.Removable}
	img, err := w.Runtime.ImageStatus(w.Context(), spec)
	w.ok("ImageStatus", err)
	if img == nil {
		w.Fatalf("image %q is not present", w.Removable)
	}
	for range 2 { // the second time is no error
		w.ok("RemoveImage", w.Runtime.RemoveImage(w.Context(), &runtimeapi.ImageSpec{Image: img.GetId()}))
		if left, err := w.Runtime.ImageStatus(w.Context(), spec); left != nil || err != nil {
			w.Errorf("the removed image is %v, %v", left, err)
		}
	}
	list, err := w.Runtime.ListImages(w.Context(), nil)
	w.ok("ListImages", err)
	if slices.ContainsFunc(list, func(other *runtimeapi.Image) bool { return other.GetId() == img.GetId() }) {
		w.Errorf("the list still has %q", img.GetId())
	}
}
