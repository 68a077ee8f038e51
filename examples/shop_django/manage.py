"""The command line of the shop, a site with tasks, an outbox, the admin and tests of its own.

pip install 'schedq[django,embedded,dashboard]'
python manage.py test
python manage.py migrate
python manage.py createsuperuser
python manage.py schedq_worker --reload &
uvicorn shop.asgi:application --port 8000
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
