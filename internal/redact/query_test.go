package redact

import "testing"

func TestQuery(t *testing.T) {
	tests := []struct{ text, want string }{
		{"GET https://h/?api_key=hunter2&q=1 failed", "GET https://h/?api_key=•••&q=1 failed"},
		{"https://h/?q=1&token=a%20b#there", "https://h/?q=1&token=•••#there"},
		{`{"url":"https://h/?access_token=abc"}`, `{"url":"https://h/?access_token=•••"}`},
		{"https://h/?key=AIzaSy", "https://h/?key=•••"},
		{"https://h/?X-Amz-Signature=f00&X-Amz-Date=1&X-Amz-Security-Token=b4", "https://h/?X-Amz-Signature=•••&X-Amz-Date=1&X-Amz-Security-Token=•••"},
		{"https://h/?sv=1;sig=f00%3D", "https://h/?sv=1;sig=•••"},
		{"https://h/?client_secret=a&PASSWORD=b&apikey=c&jwt=d", "https://h/?client_secret=•••&PASSWORD=•••&apikey=•••&jwt=•••"},
		{"https://h/?api_key=${env:API_KEY}", "https://h/?api_key=${env:API_KEY}"},
		{"https://h/?api_key=x${env:API_KEY}", "https://h/?api_key=•••"},
		{"https://h/?page_token=abc&monkey=1&tokens=5&keys=a", "https://h/?page_token=abc&monkey=1&tokens=5&keys=a"},
		{"key=value without a URL", "key=value without a URL"},
	}
	for _, test := range tests {
		if got := Query(test.text); got != test.want {
			t.Errorf("%s\nis shown as %s\nwant        %s", test.text, got, test.want)
		}
	}
}
